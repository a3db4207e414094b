"""Common evaluations of recorded traffic, as DataFrame in and DataFrame out."""
