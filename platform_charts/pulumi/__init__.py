"""The half of the platform that speaks to Pulumi's engine; everything else is plain data."""
