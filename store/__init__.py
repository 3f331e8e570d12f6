"""The ledger: its records, its contract, and the statements that are safe under live writers."""
