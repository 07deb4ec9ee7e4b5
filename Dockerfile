# Predictions without a GPU:
#   docker build -t prunecast .
#   docker run --rm -v "$PWD:/work" prunecast predict model.safetensors --gpu h200-sxm
FROM python:3.12-slim
COPY pyproject.toml README.md LICENSE /tmp/prunecast/
COPY scripts/constraints.txt /tmp/prunecast/scripts/
COPY src /tmp/prunecast/src
RUN pip install --no-cache-dir --constraint /tmp/prunecast/scripts/constraints.txt /tmp/prunecast && rm -r /tmp/prunecast
RUN useradd --create-home prunecast
USER prunecast
WORKDIR /work
# Compiles the simulator once, so that containers start without this half minute
RUN prunecast predict bert-base --gpu h200-sxm --workload batch:1 > /dev/null
ENTRYPOINT ["prunecast"]
CMD ["predict", "llama-3-8b", "--gpu", "h200-sxm", "--workload", "decode:16@4096"]
