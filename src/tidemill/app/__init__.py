"""What users declare: `App`, and how a declaration is deployed."""
