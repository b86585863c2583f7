"""What networks compute with: layers of weights in floats or in integers.

The modules in reading order:

    padding             how far a window slides over an image
    patches             convolutions as products
    gpu_kernels         the same on NVIDIA GPUs, without laying patches out
    floats              float32, or bfloat16 products added in float32
    steps               what an integer stands for in every layer of exact arithmetic
    integers_reference  exact arithmetic in int64: the definition
    integers            exact arithmetic, as fast as floats
"""
