"""What makes each alert fire, and what next to it does not; one module for each module of rules."""
