"""Any script as a job: `make run` starts a user's own command once per node, with the variables of torchrun."""
