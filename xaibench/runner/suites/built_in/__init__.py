"""The built-in suites, one TOML file each; ``xaibench list suites`` names them."""
