"""Records of programs and runs: what is declared, deployed and stored."""
