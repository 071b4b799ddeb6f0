noisewise schema new people.parquet --codebook codebook.csv --out schema.yaml
noisewise schema check schema.yaml --data people.parquet
noisewise plan --schema schema.yaml --target income --features age,region --n 3000 --epsilon 3
noisewise ledger cap --ledger budget.db --dataset people --epsilon 3 --delta 1e-6
noisewise release --data people.parquet --schema schema.yaml --formula "income ~ age + region" \
    --epsilon 3 --delta 1e-6 --ledger budget.db --out release.json
noisewise fit release.json --seed 1 --out post.nc
noisewise show post.nc
noisewise plot post.nc --out intervals.png
noisewise report post.nc --out report.html
