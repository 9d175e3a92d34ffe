"""``dsx``: NVIDIA DSX Flex 1.7, load targets as signed CloudEvents over MQTT.

``jws`` checks who said it, ``messages`` reads what was said, ``timeline`` holds the rules of NvGrid
(for each instant the newest target rules), ``pieces`` makes events of that, ``status`` says what
became of it; ``kind`` keeps the connection.
"""
