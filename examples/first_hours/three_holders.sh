# One schema for all. Each holder has its own rows, ledger and budget, and publishes one file.
noisewise ledger cap --ledger north/budget.db --dataset people --epsilon 3
noisewise release --data north/people.csv --schema schema.yaml --target income --features age,region \
    --epsilon 3 --ledger north/budget.db --out releases/north.json
noisewise ledger cap --ledger south/budget.db --dataset people --epsilon 3
noisewise release --data south/people.csv --schema schema.yaml --target income --features age,region \
    --epsilon 2 --ledger south/budget.db --out releases/south.json
noisewise ledger cap --ledger west/budget.db --dataset people --epsilon 3
noisewise release --data west/people.csv --schema schema.yaml --target income --features age,region \
    --epsilon 3 --ledger west/budget.db --out releases/west.json

# The analyst has the folder. Each holder's people may differ: auto takes exact_own_laws.
noisewise fit releases --seed 1 --chains 2 --draws 200 --out all.nc
noisewise show all.nc
noisewise report all.nc --out report.html
