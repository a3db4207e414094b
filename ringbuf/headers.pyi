"""Headers of the two shared objects, copied once and checked before anything is used; for compiled code only."""
