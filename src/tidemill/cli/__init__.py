"""The command line: `tidemill <noun> <verb>`, one file per noun."""
