# The code book declares bounds, levels, labels and units; nothing is taken from the data.
noisewise schema new people.csv --codebook codebook.csv --out schema.yaml
noisewise schema check schema.yaml --data people.csv

# Worth its epsilon? Means and spreads are from last year's publication.
noisewise plan --schema schema.yaml --target income --features age,region --n 3000 --epsilon 1,3 \
    --expect 'age: 50, 20' --expect 'income: 70000, 25000' --want 'age: 200' --out plan.png

# All Releases of these people together, ever.
noisewise ledger cap --ledger budget.db --dataset people --epsilon 3
noisewise release --data people.csv --schema schema.yaml --target income --features age,region \
    --epsilon 1 --ledger budget.db --out release.json --dry-run
noisewise release --data people.csv --schema schema.yaml --target income --features age,region \
    --epsilon 1 --ledger budget.db --out release.json --purpose "income by age, 2026"

# Who asked for what and why; and a sheet for whoever audits it.
noisewise ledger show --ledger budget.db
noisewise ledger export --ledger budget.db --out audit-sheet.html
