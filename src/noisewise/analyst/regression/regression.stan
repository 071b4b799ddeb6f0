// The posterior of a linear regression from one noisewise Release, under the default prior of
// `noisewise fit`. Data and starting values come with `noisewise export release.json --to stan`.
//
// The rows w = (1, x, y) are hidden. What is known of them is A, the sum of w w', plus noise. Rows
// are normal, indicators of categories apart: x ~ N(mu, T), y = intercept + x'slopes + error.
//
//   psi_j ~ Gamma(shape, rate_j), T | psi ~ inverse Wishart(nu, diag psi), mu flat
//   slopes | x, omega ~ N(prior_centre, (omega^2 / k) (S / n)^-1), S the scatter of x
//   omega, sigma ~ half-t(4, guide), times 1 + c (1 - R^2)^((k-1)/2), R^2 = omega^2 / (omega^2 +
//   sigma^2), c = B(1/2, 1/2) / B(1/2, k/2); intercept flat
//
// mu, T, slopes and intercept are integrated out by hand. What is left are the means of the rows and
// the Cholesky factor L of their covariance (both of the rows themselves, with divisor n), psi,
// sigma and omega. Slopes and intercept are drawn in the generated quantities.
//
// The first t covariates are indicators, 0 or 1 in every row: their variances follow from their
// means. Each is the sum of some atoms, of which two of one family are never 1 together: the levels
// of a category, or the cells of an interaction and what they leave of its categories. The law of
// the indicators is flat in the counts of atoms.
data {
  int<lower=1> n;                                // rows
  int<lower=0> t;                                // indicators
  int<lower=0> m;                                // other covariates
  array[t] int<lower=1> category;                // the family of each indicator's own atom
  matrix[t, t] sums;                             // indicators are sums * atoms
  int<lower=0> n_pairs;                          // pairs of indicators of two categories
  array[n_pairs] int<lower=1> pair_a;
  array[n_pairs] int<lower=1> pair_b;
  int<lower=1> n_entries;                        // entries of A with noise, by row and column
  array[n_entries] int<lower=1> entry_a;
  array[n_entries] int<lower=1> entry_b;
  vector[n_entries] released;
  vector<lower=0>[n_entries] noise;              // scale of Laplace noise, or sd of normal noise
  int<lower=0, upper=1> laplace;
  real<lower=0> nu;
  real<lower=0> shape;
  vector<lower=0>[t + m] rate;
  real<lower=0> guide;
  vector[t + m] prior_centre;
  matrix[t + m + 1, t + m + 1] to_original;      // coefficients in original units are
  vector[t + m + 1] shift;                       // to_original * (intercept, slopes) + shift
  real<lower=0> sigma_to_original;
}
transformed data {
  int k = t + m;
  int P = k + 2;
}
parameters {
  vector<lower=0, upper=1>[t] stick;             // share of an atom among those that are left
  vector<lower=-1, upper=1>[n_pairs] correlation;
  vector[m + 1] mean_of_numbers;                 // y is the last
  matrix[m + 1, t] B;                            // L = [[cholesky(V), 0], [B, G]]
  cholesky_factor_cov[m + 1] G;
  vector<lower=0>[k] psi;
  real<lower=0> sigma;
  real<lower=0> omega;
}
transformed parameters {
  vector[t] p;
  real log_jacobian = 0;                         // of p by stick, and of products by correlation
  matrix[k + 1, k + 1] L = rep_matrix(0, k + 1, k + 1);
  vector[k + 1] mean_of_rows;
  for (a in 1:t) {
    real rest = 1;
    for (b in 1:(a - 1)) {
      if (category[b] == category[a]) rest -= p[b];
    }
    p[a] = rest * stick[a];
    log_jacobian += log(rest);
  }
  if (t > 0) {
    matrix[t, t] V;
    vector[t] sd = sqrt(p .* (1 - p));
    for (a in 1:t) {
      for (b in 1:t) V[a, b] = -p[a] * p[b];
      V[a, a] = square(sd[a]);
    }
    for (i in 1:n_pairs) {
      real size = sd[pair_a[i]] * sd[pair_b[i]];
      V[pair_a[i], pair_b[i]] = correlation[i] * size;
      V[pair_b[i], pair_a[i]] = correlation[i] * size;
      log_jacobian += log(size);
    }
    L[1:t, 1:t] = sums * cholesky_decompose(V);
    L[(t + 1):(k + 1), 1:t] = B;
  }
  L[(t + 1):(k + 1), (t + 1):(k + 1)] = G;
  mean_of_rows = append_row(sums * p, mean_of_numbers);
}
model {
  matrix[k, k] Lx = L[1:k, 1:k];
  real degrees = nu - 1 + n;
  target += log_jacobian;
  // How many data matrices have these means and this covariance.
  for (a in (t + 1):(k + 1)) target += (n - 1 - a) * log(L[a, a]);
  // The covariates, mu and T integrated out; the law of the indicators is divided out.
  {
    matrix[k, k] H = cholesky_decompose(add_diag(n * tcrossprod(Lx), psi));
    for (a in 1:k) target += -degrees * log(H[a, a]);
    for (a in 1:t) target += (degrees - m) * log(H[a, a]);
    for (a in 1:k) {
      real power = 0.5 * nu + shape - (a <= t ? 0.5 * (nu - m) : 0);
      target += (power - 1) * log(psi[a]) - rate[a] * psi[a];
    }
  }
  // The target given the covariates, slopes and intercept integrated out.
  {
    vector[k] explained = L[k + 1, 1:k]' - Lx' * prior_centre;
    real tau2 = square(sigma) + n * square(omega) / k;
    target += -(n - 1) * log(sigma) - 0.5 * k * log(tau2 / square(sigma));
    target += -0.5 * n * (square(L[k + 1, k + 1] / sigma) + dot_self(explained) / tau2);
  }
  sigma ~ student_t(4, 0, guide);
  omega ~ student_t(4, 0, guide);
  target += log_sum_exp(0, lbeta(0.5, 0.5) - lbeta(0.5, 0.5 * k)
                           - 0.5 * (k - 1) * log1p(square(omega / sigma)));
  // The noise.
  {
    matrix[P, P] F = rep_matrix(0, P, P);
    matrix[P, P] A;
    vector[n_entries] latent;
    F[1, 1] = 1;
    F[2:P, 1] = mean_of_rows;
    F[2:P, 2:P] = L;
    A = n * tcrossprod(F);
    for (i in 1:n_entries) latent[i] = A[entry_a[i], entry_b[i]];
    if (laplace) released ~ double_exponential(latent, noise);
    else released ~ normal(latent, noise);
  }
}
generated quantities {
  vector[k + 1] theta;                           // intercept and slopes, in original units
  real sigma_original = sigma_to_original * sigma;
  {
    matrix[k, k] Lx = L[1:k, 1:k];
    vector[k] explained = L[k + 1, 1:k]' - Lx' * prior_centre;
    real w = n * square(omega) / (n * square(omega) + k * square(sigma));
    vector[k] z = to_vector(normal_rng(rep_vector(0, k), 1));
    vector[k] slopes = prior_centre
      + mdivide_left_tri_low(Lx, diag_matrix(rep_vector(1, k)))'
        * (w * explained + sqrt(w / n) * sigma * z);
    real intercept = mean_of_rows[k + 1] - dot_product(mean_of_rows[1:k], slopes)
      + normal_rng(0, sigma / sqrt(n));
    theta = to_original * append_row(intercept, slopes) + shift;
  }
}
