"""What goes over the control channel between a source and its receivers: recovery of messages, requests, responses."""
