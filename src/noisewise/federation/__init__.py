"""Many holders, one posterior: over Flower, or with no server at all from a folder of Releases.

Only Releases cross. `protocol` says what a message may contain. On the holder's side, `policy` is
what the holder allows, turns a proposal into a Release or a refusal, and shows beforehand what it
would do; `supernode` starts a Flower node that runs this code and nothing else. On the analyst's
side, `gather` is what to ask, waits for answers and judges them, and writes a round's folder, or
reads a folder of Release files, which needs no Flower. `apps` are the two Flower apps.
"""
