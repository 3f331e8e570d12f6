"""Tools of the repository that need the development environment."""
