# Creates a virtual environment that sees the image's own packages, unless there is one. If pip is installed already, the
# environment gets a wrapper for it instead of a copy, which would take seconds.
import importlib.util
import os
import sys

place = sys.argv[1]
has_pip = importlib.util.find_spec("pip") is not None
if not os.path.exists(os.path.join(place, "bin", "python3")):
    import venv

    try:
        venv.create(place, system_site_packages=True, with_pip=not has_pip)
    except Exception:
        venv.create(place, system_site_packages=True, with_pip=False)
        print("tarn: there is no pip here.", flush=True)
if has_pip:
    for name in ("pip", "pip3"):
        path = os.path.join(place, "bin", name)
        if not os.path.exists(path):
            with open(path, "w") as file:
                file.write("#!%s/bin/python3\n" % place)
                file.write("import sys\nfrom pip._internal.cli.main import main\nsys.exit(main())\n")
            os.chmod(path, 0o755)
