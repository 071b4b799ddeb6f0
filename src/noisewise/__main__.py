"""`python -m noisewise`, where the command `noisewise` isn't on the path."""

from noisewise.cli.main import main

main()
