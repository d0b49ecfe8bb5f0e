# An image of rlcli, whose working directory is /work:
#     docker build -t rlcli .
#     docker run --rm -v "$PWD:/work" --user "$(id -u)" rlcli train dqn_cartpole
# EXTRAS adds extras; wheels bring CUDA, and only the driver is the machine's:
#     docker build -t rlcli:cuda --build-arg EXTRAS=cuda13 .
#     docker run --rm --gpus all -v "$PWD:/work" --user "$(id -u)" rlcli:cuda doctor
ARG PYTHON=3.13
FROM python:${PYTHON}-slim AS build
ARG EXTRAS=
WORKDIR /source
COPY pyproject.toml hatch_build.py README.md LICENSE constraints.txt ./
COPY rlcli rlcli
COPY recipes recipes
RUN python -m venv /opt/rlcli && /opt/rlcli/bin/pip install --no-cache-dir \
    -c constraints.txt ".${EXTRAS:+[${EXTRAS}]}"

FROM python:${PYTHON}-slim
COPY --from=build /opt/rlcli /opt/rlcli
# Compiled programs are cached below HOME, which any user can write to.
ENV PATH=/opt/rlcli/bin:$PATH HOME=/tmp
RUN install --directory --mode 777 /work
WORKDIR /work
USER 1000
ENTRYPOINT ["rlcli"]
CMD ["--help"]
