"""What receivers ask of a source beside the stream: the control channel, retransmissions, requests and responses.

The package has no input, output or clock: callers pass in bytes and the time, and get bytes and events back. Every
message between the two sides is checked; what the other side does wrong is counted, and never raises an exception.
"""
