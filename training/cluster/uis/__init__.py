"""`open`: the web UIs of a stack at ports of this machine."""
