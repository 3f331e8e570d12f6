"""What we claim about speed, reproducible by `make bench`."""
