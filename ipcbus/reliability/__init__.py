"""What makes UDP reliable: who misses what, who asks when, what is sent again, and how fast.

No input, no output, no clock, no chance of its own: the time and a `random.Random` are passed in, numbers and bytes
come out, so that a thousand seeds of loss take seconds. Rules and defaults are those of Ultra Messaging's LBT-RM and
LBT-RU, except where its shipped defaults break its own rules.
"""
