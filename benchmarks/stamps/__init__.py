"""Clock stamps inside kernels: where they are written, what is stamped, and how the runs go.

`gpu_trace`, `gpu_items`, `gpu_turns` and `gpu_trace_few` are the commands. `sources` copies the package's
CUDA sources and writes the patches in, so that the kernels themselves stay as they are; each `*_patches` says
where the stamps of a command stand and what they are called, each `*_cases` what it runs.
"""
