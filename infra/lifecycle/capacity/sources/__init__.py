"""What AWS says about capacity, one file per kind. An answer that AWS refuses is a `NotKnown`, never an empty one."""
