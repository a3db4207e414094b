# Nothing of it is used by compiled code.
