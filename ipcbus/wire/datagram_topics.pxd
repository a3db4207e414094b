# Nothing: only Python code uses this module.
