"""What the process and its machine give: threads, descriptors, forks, signals, limits, other processes' users."""
