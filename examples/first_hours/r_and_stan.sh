noisewise fit release.json --seed 1 --out post.nc

# Statements about several parameters at once; names as the summary shows them.
noisewise show post.nc --ask "age > 0 and R2 > 0.1" --ask "-100 < age < 1500" \
    --ask '2 * age > `region[south]`' --ask 'abs(`region[south]`) < 5000'

# Draws for R's package posterior, and for whoever takes a data frame (docs/r.md).
noisewise export post.nc --to csv --out draws.csv
noisewise export post.nc --to parquet --out draws.parquet

noisewise plot post.nc --kind effect --out effects.png
noisewise plot post.nc --kind pairs --names age,intercept --out pairs.png

# The same posterior as a Stan program, with its data and starting values.
noisewise export release.json --to stan --out model.stan
