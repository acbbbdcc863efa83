"""What an environment needs of a VPC and a cluster that the stack does not make: `vpc` and `cluster` read AWS, the rules judge."""
