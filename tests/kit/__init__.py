"""What the tests of whole buses share: contexts in every mode, every form of receiving, other processes, the ledger."""
