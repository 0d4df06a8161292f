"""Route between a speculative and a plain server, with the ``openai`` package on top.

    python -m sglang.launch_server --port 30000 $(autospec args llama.yaml)
    python -m sglang.launch_server --port 30001 --model-path MODEL
    python examples/two_servers.py http://spec:30000 http://plain:30001 --profile llama.yaml

New requests go where the policy says; when a server fails, the other answers its requests.
"""

from __future__ import annotations

import argparse

import openai

import autospec


def main() -> None:
    """Stream some chats and say who answered."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url")
    parser.add_argument("plain_url")
    parser.add_argument("--profile")
    parser.add_argument("--requests", type=int, default=10)
    given = parser.parse_args()

    with autospec.Client(given.url, given.plain_url, profile=given.profile) as http:
        http.on_decision(lambda decision: print(f"{decision.action}: {decision.reason}"))
        client = openai.OpenAI(base_url=f"{given.url}/v1", api_key="EMPTY", http_client=http)
        model = client.models.list().data[0].id
        for number in range(given.requests):
            question = f"Tell me a fact about the number {number}."
            stream = client.chat.completions.create(
                model=model, messages=[{"role": "user", "content": question}], stream=True
            )
            for chunk in stream:
                print(chunk.choices[0].delta.content or "", end="", flush=True)
            print()
        counters = http.counters()
    answers = counters.requests
    print(
        f"{answers['speculative']} from the speculative server, {answers['plain']} from the plain "
        f"one; {counters.accept_length or 1.0:.2f} tokens a step"
    )


if __name__ == "__main__":
    main()
