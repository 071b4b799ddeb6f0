"""The methods of the papers, for comparison; `exact` is what to use. Written for reading."""
