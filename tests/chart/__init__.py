"""The chart, rendered by helm: what it installs, what it refuses, and that it agrees with the code."""
