"""RMCP presence: the one question that a management controller answers without a session (ASF 2.0, section 3.2.4)."""

ASF_IANA = bytes([0x00, 0x00, 0x11, 0xBE])
PING, PONG = 0x80, 0x40
# RMCP header (version 1.0, no sequence number, class ASF), then type, message tag, and no data.
PRESENCE_PING = bytes([0x06, 0x00, 0xFF, 0x06]) + ASF_IANA + bytes([PING, 0x01, 0x00, 0x00])


def is_presence_pong(data):
    return len(data) >= 12 and data[3] == 0x06 and data[4:8] == ASF_IANA and data[8] == PONG
