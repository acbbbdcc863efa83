"""The platform engineer's commands: inspect, price, check and bring up an environment."""
