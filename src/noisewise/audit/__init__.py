"""Does the noise do what it says, for this request?"""
