"""Many holders, one posterior: over Flower, or with no server at all from a folder of Releases.

Only Releases cross. `protocol` says what a message may contain. On the holder's side, `policy` is
what the holder allows, `answer` turns a proposal into a Release or a refusal, `client_app` hands
it to Flower, and `supernode` starts a Flower node that runs this code and nothing else. On the
analyst's side, `settings` is what to ask, `gather` waits for answers and judges them, `record`
keeps them with a report, and `server_app` fits them. `collect` reads a folder of Release
files and needs no Flower.
"""
