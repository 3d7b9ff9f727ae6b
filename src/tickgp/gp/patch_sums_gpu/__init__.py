"""Sums over patches as fused GPU kernels (Pallas, by way of Triton): no value of k leaves the chip. See `patch_sums`.

A kernel works on a tile of values of k, of some inducing patches and some patches, for one image after the other. The
squared distance of z and x is a single product of extended vectors, [−2z, |z|², 1]·[x, 1, |x|²], and the product of T
with the extended x gives all the sums that the gradients need. Distances are made of three products in TF32, which
keeps about as many digits as float32; gradients, of one. Arrays are padded with zeros to whole tiles; there C is 0.
"""

from tickgp.gp.patch_sums_gpu.cross_sums import cross_sums, cross_sums_gradient
from tickgp.gp.patch_sums_gpu.self_sums import self_sums, self_sums_gradient

__all__ = ["cross_sums", "cross_sums_gradient", "self_sums", "self_sums_gradient"]
