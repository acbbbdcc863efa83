"""The proxy between a load balancer that signs people in and the web UIs: it lets a person into the UIs of their teams."""
