"""Test which modules a program imports from outside of its own code, and which of these imports
happen in every run.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from tfdeploy.model.job import Job
from tfdeploy.planning.source import imports, packages, source

JOB = Job(name="digits", mode="async", command=("python", "train.py"), code="/code")


def find_imports(text: str, job: Job = JOB, **others: str) -> dict[str, bool]:
    """Return {module: True if every run of the program imports it}.

    `others` are further files of the code: {path: text}, where the path has no .py, and __ in place
    of /.
    """
    sources = {
        "train.py": text,
        **{f"{name.replace('__', '/')}.py": body for name, body in others.items()},
    }
    program = source.read_program(job.command, sources)
    return {
        module_import.module: module_import.always_reached
        for module_import in imports.find_imports_outside_code(
            job, program, [*sources, "native.cpython-312.so", "linked/"]
        )
    }


@pytest.mark.parametrize(
    "text",
    [
        "import pandas",
        "import pandas.io as io",
        "from pandas import DataFrame",
        "if __name__ == '__main__':\n    import pandas",
        "class Reader:\n    import pandas",
        "with open('x') as f:\n    import pandas",
        "try:\n    import pandas\nfinally:\n    pass",
        "def main(_):\n    import pandas\nif __name__ == '__main__':\n    tf.app.run()",
        "try:\n    import pandas\nexcept KeyError:\n    pass",
        "import reader",  # this module is part of the code
        "from models import reader",
        "import sys, os\nsys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))\nimport "
        "pandas",
        "import sys\nsys.path.append('..')\nimport pandas",
        "import sys\nsys.path = ['lib'] + sys.path\nimport pandas",
    ],
)
def test_import_reached_by_every_run_is_certain(text: str) -> None:
    others = {"reader": "import pandas", "models____init__": "", "models__reader": "import pandas"}
    assert find_imports(text, **others)["pandas"] is True


@pytest.mark.parametrize(
    "text",
    [
        "def main():\n    import pandas",
        "try:\n    import pandas\nexcept ImportError:\n    raise RuntimeError('pandas is needed')",
        "try:\n    import pandas\nexcept ImportError as error:\n    print(error)\n    sys.exit(1)",
        "if FLAGS.table:\n    import pandas",
        "if FLAGS.table:\n    pass\nelse:\n    import pandas",
        "for each in names:\n    import pandas",
        "match kind:\n    case 'table':\n        import pandas",
        "if a:\n    import reader",
        "import sys\nsys.exit(main())\nimport pandas",
        "raise SystemExit\nimport pandas",
        "import sys\nsys.path.append('/opt/lib')\nimport pandas",
        "import sys\nsys.path.insert(0, os.environ['LIB'])\nimport pandas",
        "import sys\nsys.path += [LIB]\nimport pandas",
        "import sys\nsys.path[0:0] = ['/opt/lib']\nimport pandas",
        "import sys\nsys.meta_path.append(Finder())\nimport pandas",
        "import site\nsite.addsitedir('lib')\nimport pandas",
        "import os\nos.system('pip install pandas')\nimport pandas",
        "subprocess.check_call([sys.executable, '-m', 'pip', 'install', 'pandas'])\nimport pandas",
    ],
)
def test_import_that_run_may_skip_is_not_certain(text: str) -> None:
    assert find_imports(text, reader="import pandas")["pandas"] is False


@pytest.mark.parametrize(
    "text",
    [
        "try:\n    import pandas\nexcept ImportError:\n    pandas = None",
        "try:\n    import pandas\nexcept:\n    pass",
        "try:\n    import numpy\nexcept (ValueError, ImportError):\n    import pandas",
        "with contextlib.suppress(ImportError):\n    import pandas",
        "if sys.version_info[0] == 2:\n    import pandas",
        "if TYPE_CHECKING:\n    import pandas",
        "from . import pandas",
        # `other` imports pandas only if it is the main program.
        "import other",
        "import tensorflow",
        "import native, models, reader, linked.part",
    ],
)
def test_handled_imports_and_own_modules_are_not_external(
    text: str,
) -> None:
    other_files = {
        "other": "if __name__ == '__main__':\n    import pandas",
        "models____init__": "",
        "sub__reader": "",
    }
    assert (
        not {"pandas", "native", "models", "reader", "linked", "tensorflow"}
        & find_imports(text, **other_files).keys()
    )


@pytest.mark.parametrize(
    ("job", "sure"),
    [
        (replace(JOB, env={"PYTHONPATH": "src:lib"}), True),
        (replace(JOB, env={"PYTHONPATH": "/opt/lib"}), False),
        (replace(JOB, env={"PYTHONPATH": "{data.lib}"}), False),
        (replace(JOB, secrets=("PYTHONPATH",)), False),
        (replace(JOB, command=("mpirun", "python", "train.py")), False),
        (replace(JOB, command=("/opt/conda/bin/python", "train.py")), None),
        (replace(JOB, command=("env", "A=1", "/usr/bin/python3", "train.py")), None),
        (replace(JOB, command=("bash", "train.sh")), None),
        (replace(JOB, mode="plain"), True),
    ],
)
def test_certainty_depends_on_role_and_arguments(job: Job, sure: bool | None) -> None:
    assert find_imports("import pandas", job).get("pandas") is sure


def test_imports_of_programs_of_single_roles_are_not_certain() -> None:
    job = replace(JOB, command=("python", "{job_name}.py"))
    sources = {"ps.py": "import pandas", "worker.py": "import gym"}
    read = imports.find_imports_outside_code(
        job, source.read_program(job.command, sources), sources
    )
    assert {module_import.module: module_import.always_reached for module_import in read} == {
        "pandas": False,
        "gym": False,
    }


def test_hosts_are_asked_once_for_each_module() -> None:
    text = "import numpy as np, pandas.io\nimport reader\ndef f():\n    import numpy.random"
    read = source.read_program(JOB.command, {"train.py": text, "reader.py": "import gym"})
    asked = imports.modules_to_probe(JOB, read)
    assert asked == ("gym", "numpy", "pandas", "reader", "tf_slim")


@pytest.mark.parametrize(
    ("module", "package"),
    [
        ("cv2", "opencv-python-headless"),
        ("yaml", "PyYAML"),
        ("gym", "gym"),
        ("imp", None),
        ("tkinter", None),
        ("Queue", None),
    ],
)
def test_package_of_module(module: str, package: str | None) -> None:
    assert packages.package_providing(module) == package


def test_files_that_python_finds_before_its_own_modules_are_named() -> None:
    files = ["train.py", "queue.py", "numpy/__init__.py", "time.py", "test.py", "src/random.py"]
    at_top = source.read_program(("python", "train.py"), dict.fromkeys(files, ""))
    assert imports.find_module_hiding_files(at_top, files) == {
        "queue": "queue.py",
        "numpy": "numpy/__init__.py",
    }
    below = source.read_program(("python", "src/random.py"), dict.fromkeys(files, ""))
    assert imports.find_module_hiding_files(below, files) == {"random": "src/random.py"}
