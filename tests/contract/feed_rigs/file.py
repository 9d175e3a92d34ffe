"""A file that somebody appends to."""

import json

from feed_rigs.base import Rig, Said


class FileRig(Rig):
    kind = "file"

    def settings(self) -> dict[str, object]:
        (self.folder / "said.jsonl").touch()
        return {"path": str(self.folder / "said.jsonl")}

    def say(self, *events: Said) -> None:
        for event in events:
            self.say_raw(json.dumps({"t_s": 0, **event.body()}).encode())

    def say_raw(self, message: bytes) -> None:
        with (self.folder / "said.jsonl").open("ab") as file:
            file.write(message.replace(b"\n", b" ") + b"\n")
