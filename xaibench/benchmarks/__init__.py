"""One folder per benchmark: its data, networks, suites, published tables and claims."""
