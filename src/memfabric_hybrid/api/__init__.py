"""Where the program's calls come in: arguments, configurations, codes, and the line of the log for a failure."""
