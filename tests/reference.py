"""The paper's equations as slow loops in float64, one function each, to compare the library with.

Sizes: N images, P patches, E patch length, M inducing, K classes, G channels, S Monte Carlo samples,
T points, L latents, Q mixed outputs. In q(u) = N(m, S) the letter S is the covariance, as in the paper.
"""

import math

import numpy as np
from scipy.special import log_ndtr, ndtr


def patches(images, h, w, sy=1, sx=1):
    """x[p] of images (N,H,W,C): (N,P,E). Corners row by row; in a patch row, then column, then channel."""
    N, H, W, C = images.shape
    out = []
    for n in range(N):
        for r in range(0, H - h + 1, sy):
            for c in range(0, W - w + 1, sx):
                out.append([images[n, r + i, c + j, k] for i in range(h) for j in range(w) for k in range(C)])
    return np.array(out, dtype=np.float64).reshape(N, len(out) // N, h * w * C)


def places(H, W, h, w, sy=1, sx=1):
    """l(p), (row, column) in pixels of each patch's upper-left corner, in the order of `patches`: (P,2)."""
    return np.array([[float(r), float(c)] for r in range(0, H - h + 1, sy) for c in range(0, W - w + 1, sx)])


def distance(a, b, lengthscale):
    """r = sqrt(sum_d ((a_d - b_d) / lengthscale_d)^2), lengthscale a scalar or one value per dimension."""
    scales = np.broadcast_to(np.asarray(lengthscale, dtype=np.float64), (len(a),))
    return math.sqrt(sum(((float(a[d]) - float(b[d])) / scales[d]) ** 2 for d in range(len(a))))


def se(variance, lengthscale):
    """k(a, b) = variance exp(-r^2 / 2)."""
    return lambda a, b: variance * math.exp(-(distance(a, b, lengthscale) ** 2) / 2)


def matern12(variance, lengthscale):
    """k(a, b) = variance exp(-r)."""
    return lambda a, b: variance * math.exp(-distance(a, b, lengthscale))


def matern32(variance, lengthscale):
    """k(a, b) = variance (1 + sqrt(3) r) exp(-sqrt(3) r)."""

    def k(a, b):
        r = distance(a, b, lengthscale)
        return variance * (1 + math.sqrt(3) * r) * math.exp(-math.sqrt(3) * r)

    return k


def matern52(variance, lengthscale):
    """k(a, b) = variance (1 + sqrt(5) r + 5 r^2 / 3) exp(-sqrt(5) r)."""

    def k(a, b):
        r = distance(a, b, lengthscale)
        return variance * (1 + math.sqrt(5) * r + 5 * r**2 / 3) * math.exp(-math.sqrt(5) * r)

    return k


def sum_kernel(*kernels):
    """k(a, b) = sum_i k_i(a, b)."""
    return lambda a, b: sum(k(a, b) for k in kernels)


def product_kernel(*kernels):
    """k(a, b) = prod_i k_i(a, b)."""
    return lambda a, b: math.prod(k(a, b) for k in kernels)


def gram(k, A, B):
    """[K]_ij = k(A_i, B_j) for the rows of A and B."""
    return np.array([[k(a, b) for b in B] for a in A])


def patch_response(k_patch, k_loc=None):
    """k_g(a, s, b, t) = k_patch(a, b) k_loc(s, t), patches a, b at s, t; without k_loc k_patch(a, b)."""
    if k_loc is None:
        return lambda a, s, b, t: k_patch(a, b)
    return lambda a, s, b, t: k_patch(a, b) * k_loc(s, t)


def inducing_Kuu(k_g, Z, Z_places=None):
    """[Kuu]_mm' = k_g((Z_m, place_m), (Z_m', place_m')): (M,M)."""
    M = len(Z)
    where = [None] * M if Z_places is None else Z_places
    return np.array([[k_g(Z[i], where[i], Z[j], where[j]) for j in range(M)] for i in range(M)])


def summed_Kuf(k_g, Z, Z_places, x, x_places, weights=None):
    """cov[g(Z_m), f(x_n)] = (1/P) sum_p w_p k_g((Z_m, place_m), (x_n[p], l(p))), patches x (N,P,E): (M,N)."""
    M, (N, P, _) = len(Z), x.shape
    where = [None] * M if Z_places is None else Z_places
    weights = np.ones(P) if weights is None else weights
    Kuf = np.zeros((M, N))
    for m in range(M):
        for n in range(N):
            for p in range(P):
                Kuf[m, n] += weights[p] * k_g(Z[m], where[m], x[n, p], x_places[p]) / P
    return Kuf


def summed_Kff(k_g, x, x2, x_places, weights=None):
    """cov[f(x_n), f(x2_n')] = 1/P^2 sum_p sum_p' w_p w_p' k_g((x_n[p], l(p)), (x2_n'[p'], l(p'))): (N,N')."""
    (N, P, _), N2 = x.shape, x2.shape[0]
    weights = np.ones(P) if weights is None else weights
    Kff = np.zeros((N, N2))
    for n in range(N):
        for n2 in range(N2):
            for p in range(P):
                for p2 in range(P):
                    covariance = k_g(x[n, p], x_places[p], x2[n2, p2], x_places[p2])
                    Kff[n, n2] += weights[p] * weights[p2] * covariance / P**2
    return Kff


def mock_Kuf(k_g, Z, Z_places, x, x_places):
    """cov[g(Z_m), f_p(x_n)] = k_g((Z_m, place_m), (x_n[p], l(p))): (M,N,P)."""
    M, (N, P, _) = len(Z), x.shape
    where = [None] * M if Z_places is None else Z_places
    return np.array(
        [[[k_g(Z[m], where[m], x[n, p], x_places[p]) for p in range(P)] for n in range(N)] for m in range(M)]
    )


def mock_Kff(k_g, x, x2, x_places):
    """cov[f_p(x_n), f_q(x2_n')] = k_g((x_n[p], l(p)), (x2_n'[q], l(q))): (N,P,N',P)."""
    (N, P, _), N2 = x.shape, x2.shape[0]
    Kff = np.zeros((N, P, N2, P))
    for n in range(N):
        for p in range(P):
            for n2 in range(N2):
                for q in range(P):
                    Kff[n, p, n2, q] = k_g(x[n, p], x_places[p], x2[n2, q], x_places[q])
    return Kff


def identity_conv(images, h, w, G, sy=1, sx=1):
    """Output (N,rows,cols,G): channel i < C is input channel i at the window's centre, the rest zero."""
    N, H, W, C = images.shape
    rows, cols = (H - h) // sy + 1, (W - w) // sx + 1
    out = np.zeros((N, rows, cols, G))
    for n in range(N):
        for r in range(rows):
            for c in range(cols):
                for i in range(min(C, G)):
                    out[n, r, c, i] = images[n, r * sy + (h - 1) // 2, c * sx + (w - 1) // 2, i]
    return out


def unwhiten(Kuu, q_mu, q_sqrt):
    """m = Lu q_mu (M,) and S = Lu q_sqrt q_sqrt^T Lu^T (M,M), Lu the lower Cholesky factor of Kuu."""
    Lu = np.linalg.cholesky(Kuu)
    return Lu @ q_mu, Lu @ q_sqrt @ q_sqrt.T @ Lu.T


def qf(Kuu, Kuf, Kff, m, S):
    """Mean Kuf^T Kuu^-1 m (T,), covariance Kff + Kuf^T Kuu^-1 (S - Kuu) Kuu^-1 Kuf (T,T). Paper: eq. qf."""
    inverse = np.linalg.inv(Kuu)
    return Kuf.T @ inverse @ m, Kff + Kuf.T @ inverse @ (S - Kuu) @ inverse @ Kuf


def correlated_covariance(Kuu, Kuf, Kff, S):
    """Kuf^T Kuu^-1 S Kuu^-1 Kuf + diag(Kff - Kuf^T Kuu^-1 Kuf): q(f) with p(f|u) independent over points."""
    inverse = np.linalg.inv(Kuu)
    residual = Kff - Kuf.T @ inverse @ Kuf
    return Kuf.T @ inverse @ S @ inverse @ Kuf + np.diag(np.diag(residual))


def kl(Kuu, m, S):
    """KL[N(m,S) || N(0,Kuu)] = (tr(Kuu^-1 S) + m^T Kuu^-1 m - M + log det Kuu - log det S) / 2."""
    inverse = np.linalg.inv(Kuu)
    log_determinants = np.linalg.slogdet(Kuu)[1] - np.linalg.slogdet(S)[1]
    return (np.trace(inverse @ S) + m @ inverse @ m - len(m) + log_determinants) / 2


def block_diagonal(blocks):
    """The matrix with the given (possibly rectangular) blocks along its diagonal and zeros elsewhere."""
    out = np.zeros((sum(b.shape[0] for b in blocks), sum(b.shape[1] for b in blocks)))
    row = col = 0
    for block in blocks:
        for i in range(block.shape[0]):
            for j in range(block.shape[1]):
                out[row + i, col + j] = block[i, j]
        row, col = row + block.shape[0], col + block.shape[1]
    return out


def coregionalized_Kff(W, Kffs):
    """f = W g: cov[f_q(x_t), f_q'(x_t')] = sum_l W_ql W_q'l Kffs[l]_tt', rows q * T + t: (Q T, Q T')."""
    (Q, L), (T, T2) = W.shape, Kffs[0].shape
    out = np.zeros((Q * T, Q * T2))
    for q in range(Q):
        for q2 in range(Q):
            for t in range(T):
                for t2 in range(T2):
                    out[q * T + t, q2 * T2 + t2] = sum(W[q, i] * W[q2, i] * Kffs[i][t, t2] for i in range(L))
    return out


def coregionalized_Kuf(W, Kufs):
    """cov[g_l(Z_m), f_q(x_t)] = W_ql Kufs[l]_mt, rows latent by latent, columns q * T + t: (L M, Q T)."""
    (Q, L), T = W.shape, Kufs[0].shape[1]
    rows = []
    for i in range(L):
        for m in range(Kufs[i].shape[0]):
            rows.append([W[q, i] * Kufs[i][m, t] for q in range(Q) for t in range(T)])
    return np.array(rows)


def coregionalized_qf(W, Kuus, Kufs, Kffs, ms, Ss):
    """eq. qf of f = W g on the big matrices, u = all latents' g_l(Z_l), so Kuu and S are block-diagonal.

    Each list has one entry per latent. Mean (Q,T), covariance (Q,T,Q,T).
    """
    Q, T = W.shape[0], Kufs[0].shape[1]
    Kuf, Kff = coregionalized_Kuf(W, Kufs), coregionalized_Kff(W, Kffs)
    mean, covariance = qf(block_diagonal(Kuus), Kuf, Kff, np.concatenate(ms), block_diagonal(Ss))
    return mean.reshape(Q, T), covariance.reshape(Q, T, Q, T)


def separate_qf(Kuus, Kufs, Kffs, ms, Ss):
    """eq. qf of independent f_l = g_l on block-diagonal matrices: mean (L,T), covariance (L,T,L,T)."""
    L, T = len(Kufs), Kufs[0].shape[1]
    Kuf, Kff = block_diagonal(Kufs), block_diagonal(Kffs)
    mean, covariance = qf(block_diagonal(Kuus), Kuf, Kff, np.concatenate(ms), block_diagonal(Ss))
    return mean.reshape(L, T), covariance.reshape(L, T, L, T)


def trapezoid(values, grid):
    """sum_i (values_i + values_i+1) / 2 (grid_i+1 - grid_i)."""
    return sum((values[i] + values[i + 1]) / 2 * (grid[i + 1] - grid[i]) for i in range(len(grid) - 1))


def gaussian_expectation(function, mu, var, points=20001, width=12.0):
    """E[function(f)] under f ~ N(mu, var), var > 0: trapezoid over mu +- width standard deviations."""
    sd = math.sqrt(var)
    grid = np.linspace(mu - width * sd, mu + width * sd, points)
    density = [math.exp(-((f - mu) ** 2) / (2 * var)) / math.sqrt(2 * math.pi * var) for f in grid]
    return trapezoid([function(f) * d for f, d in zip(grid, density, strict=True)], grid)


def softmax_log_prob(f, y):
    """log p(y | f) = f_y - log sum_k exp(f_k)."""
    top = max(f)
    return f[y] - top - math.log(sum(math.exp(value - top) for value in f))


def softmax_expected_log_prob(mu, var, y, S=100_000, seed=0):
    """E[log p(y | f)], f_k ~ N(mu_k, var_k) independent, from S draws: the mean and its standard error."""
    rng = np.random.default_rng(seed)
    draws = [softmax_log_prob(mu + np.sqrt(var) * rng.standard_normal(len(mu)), y) for _ in range(S)]
    return np.mean(draws), np.std(draws) / math.sqrt(S)


def robustmax_log_prob(f, y, epsilon=1e-3):
    """log p(y | f) = log(1 - epsilon) if y = argmax_k f_k, else log(epsilon / (K - 1))."""
    return math.log(1 - epsilon) if np.argmax(f) == y else math.log(epsilon / (len(f) - 1))


def probability_largest(mu, var, y):
    """P(argmax_k f_k = y) = E[prod_{k != y} Phi((f_y - mu_k) / sqrt(var_k))] under f_y ~ N(mu_y, var_y)."""
    others = [(mu[k], math.sqrt(var[k])) for k in range(len(mu)) if k != y]
    return gaussian_expectation(lambda f: math.prod(ndtr((f - c) / sd) for c, sd in others), mu[y], var[y])


def robustmax_expected_log_prob(mu, var, y, epsilon=1e-3):
    """E[log p(y | f)] = A log(1 - epsilon) + (1 - A) log(epsilon / (K - 1)), A = P(argmax = y)."""
    A = probability_largest(mu, var, y)
    return A * math.log(1 - epsilon) + (1 - A) * math.log(epsilon / (len(mu) - 1))


def bernoulli_log_prob(f, y):
    """log p(y | f) = log Phi(f) for y = 1 and log Phi(-f) for y = 0."""
    return float(log_ndtr(f if y == 1 else -f))


def bernoulli_expected_log_prob(mu, var, y):
    """E[log p(y | f)] under f ~ N(mu, var), probit link, by trapezoid."""
    return gaussian_expectation(lambda f: bernoulli_log_prob(f, y), mu, var)


def gaussian_expected_log_prob(mu, var, y, noise):
    """E[log N(y; f, noise)] = -log(2 pi noise) / 2 - ((y - mu)^2 + var) / (2 noise), noise a variance."""
    return -math.log(2 * math.pi * noise) / 2 - ((y - mu) ** 2 + var) / (2 * noise)


def entropy(p):
    """H[p] = -sum_k p_k log p_k in nats, with 0 log 0 = 0."""
    return -sum(value * math.log(value) for value in p if value > 0)


def predictive_entropy(probabilities):
    """H[(1/S) sum_s p_s] for class probabilities (S,N,K): (N,)."""
    S, N, K = probabilities.shape
    means = [[sum(probabilities[s, n, k] for s in range(S)) / S for k in range(K)] for n in range(N)]
    return np.array([entropy(p) for p in means])


def expected_entropy(probabilities):
    """(1/S) sum_s H[p_s] for class probabilities (S,N,K): (N,)."""
    S, N, _ = probabilities.shape
    return np.array([sum(entropy(probabilities[s, n]) for s in range(S)) / S for n in range(N)])


def mutual_information(probabilities):
    """H[(1/S) sum_s p_s] - (1/S) sum_s H[p_s] for class probabilities (S,N,K): (N,)."""
    return predictive_entropy(probabilities) - expected_entropy(probabilities)


def elbo(expectations, kls):
    """sum_n E_q[log p(y_n | f_n)] - sum_l KL_l over the whole dataset. Paper: eq. elbo."""
    return sum(expectations) - sum(kls)


def minibatch_elbo(expectations, kls, num_data):
    """(num_data / B) sum_{n in batch} E_q[log p(y_n | f_n)] - sum_l KL_l, B the size of the batch."""
    return num_data / len(expectations) * sum(expectations) - sum(kls)


def exact_posterior(Kff, Kfs, Kss, noise, y):
    """Mean Kfs^T (Kff + noise I)^-1 y, covariance Kss - Kfs^T (Kff + noise I)^-1 Kfs at test points s."""
    inverse = np.linalg.inv(Kff + noise * np.eye(len(y)))
    return Kfs.T @ inverse @ y, Kss - Kfs.T @ inverse @ Kfs


def log_marginal_likelihood(Kff, noise, y):
    """log N(y; 0, C) = -(y^T C^-1 y + log det C + N log(2 pi)) / 2, C = Kff + noise I."""
    C = Kff + noise * np.eye(len(y))
    return -(y @ np.linalg.inv(C) @ y + np.linalg.slogdet(C)[1] + len(y) * math.log(2 * math.pi)) / 2


def optimal_q(Kuu, Kuf, noise, y):
    """m = Kuu A^-1 Kuf y / noise and S = Kuu A^-1 Kuu, A = Kuu + Kuf Kuf^T / noise (Titsias), unwhitened."""
    inverse = np.linalg.inv(Kuu + Kuf @ Kuf.T / noise)
    return Kuu @ inverse @ Kuf @ y / noise, Kuu @ inverse @ Kuu


def level_crossings(k, u=0.0, step=1e-4):
    """(1 / pi) sqrt(-k''(0) / k(0)) exp(-u^2 / (2 k(0))) per unit of a 1-d input, both directions counted.

    k''(0) is the second difference (k(step) - 2 k(0) + k(-step)) / step^2. For a Matern 3/2 the relative
    error is about step / lengthscale; for a Matern 1/2 the result grows without bound as the step falls.
    """
    k0 = k([0.0], [0.0])
    second = (k([0.0], [step]) - 2 * k0 + k([0.0], [-step])) / step**2
    return math.sqrt(-second / k0) / math.pi * math.exp(-(u**2) / (2 * k0))


def simulated_level_crossings(k, u=0.0, length=10.0, points=400, paths=300, seed=0):
    """Crossings of u per unit length on paths drawn on a grid over [0, length]: mean and standard error."""
    grid = np.linspace(0.0, length, points)
    values, vectors = np.linalg.eigh(gram(k, grid[:, None], grid[:, None]))
    root = vectors @ np.diag(np.sqrt(np.maximum(values, 0.0)))
    rng = np.random.default_rng(seed)
    counts = []
    for _ in range(paths):
        path = root @ rng.standard_normal(points)
        counts.append(sum((path[i] > u) != (path[i + 1] > u) for i in range(points - 1)) / length)
    return np.mean(counts), np.std(counts) / math.sqrt(paths)
