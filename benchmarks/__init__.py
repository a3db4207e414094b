"""Speed of ipcbus and of the machine it runs on; measured here, never asserted in tests."""
