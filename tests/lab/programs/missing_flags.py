"""A program that accepts only --job_name and --task_index. Any other flag is an error (exit 2). The
addresses of the cluster are constants in the program.

    python missing_flags.py --job_name=worker --task_index=0
"""
import argparse
import signal
import time


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--job_name", required=True)
    parser.add_argument("--task_index", type=int, required=True)
    args = parser.parse_args()

    cluster = {"ps": ["localhost:2222"], "worker": ["localhost:2223", "localhost:2224"]}
    print("%s:%d of %s" % (args.job_name, args.task_index, cluster), flush=True)
    if args.job_name == "ps":
        while True:
            signal.pause()
    for step in range(1, 21):
        time.sleep(0.1)
        print("step %d" % step, flush=True)


if __name__ == "__main__":
    main()
