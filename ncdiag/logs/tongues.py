"""What tools say of an error in the language of their user, in the words of the C locale.

Source: the messages of glibc 2.31 to 2.41 for these error numbers in German, French, Spanish, Italian, Portuguese, Russian, Chinese, Japanese and Korean.
"""

from __future__ import annotations

from collections.abc import Sequence

_SAID = {
    "No space left on device": (
        "Auf dem Gerät ist kein Speicherplatz mehr verfügbar", "Aucun espace disponible sur le périphérique", "No queda espacio en el dispositivo", "Spazio esaurito sul device",
        "Não há espaço disponível no dispositivo", "На устройстве не осталось свободного места", "设备上没有空间", "デバイスに空き領域がありません", "장치에 남은 공간이 없음",
    ),
    "Connection refused": (
        "Verbindungsaufbau abgelehnt", "Connexion refusée", "Conexión rehusada", "Connessione rifiutata", "Conexão recusada", "В соединении отказано", "拒绝连接", "連接被拒絕", "接続を拒否されました", "연결이 거부됨",
    ),
    "Connection timed out": (
        "Die Wartezeit für die Verbindung ist abgelaufen", "Connexion terminée par expiration du délai d'attente", "Expiró el tiempo de conexión", "Connessione scaduta", "Tempo esgotado para conexão", "Время ожидания соединения истекло", "连接超时", "接続がタイムアウトしました", "연결 시간 초과",
    ),
    "No route to host": (
        "Keine Route zum Zielrechner", "Aucun chemin d'accès pour atteindre l'hôte cible", "No existe ninguna ruta hasta el `host'", "Nessun instradamento per l'host", "Não há rota para o host", "Нет маршрута до узла", "没有到主机的路由", "ホストへの経路がありません", "호스트로 갈 루트가 없음",
    ),
    "Address already in use": (
        "Die Adresse wird bereits verwendet", "Adresse déjà utilisée", "La dirección ya se está usando", "Indirizzo già in uso", "Endereço já em uso", "Адрес уже используется", "地址已在使用", "地址已被使用", "アドレスは既に使用中です", "주소가 이미 사용 중입니다",
    ),
    "Cannot allocate memory": (
        "Nicht genügend Hauptspeicher verfügbar", "Ne peut allouer de la mémoire", "No se pudo asignar memoria", "Impossibile allocare memoria", "Não foi possível alocar memória", "Не удаётся выделить память", "无法分配内存", "メモリを確保できません", "메모리를 할당할 수 없습니다",
    ),
    "Disk quota exceeded": (
        "Der zugewiesene Plattenplatz (Quota) ist überschritten", "Débordement du quota d'espace disque", "Se ha excedido la cuota de disco", "Quota disco superata", "Превышена дисковая квота", "超出磁盘限额", "ディスク使用量制限を超過しました", "디스크 할당량이 초과됨",
    ),
    "Too many open files": (
        "Zu viele offene Dateien", "Trop de fichiers ouverts", "Demasiados ficheros abiertos", "Troppi file aperti", "Слишком много открытых файлов", "打开的文件过多", "開いているファイルが多すぎます", "열린 파일이 너무 많음",
    ),
    "Read-only file system": (
        "Das Dateisystem ist nur lesbar", "Système de fichiers accessible en lecture seulement", "Sistema de ficheros de sólo lectura", "File system in sola lettura", "Файловая система доступна только для чтения", "只读文件系统", "読み込み専用ファイルシステムです", "읽기전용 파일 시스템",
    ),
}  # fmt: skip
TONGUES = {phrase: english for english, phrases in _SAID.items() for phrase in phrases}


def in_english(text: str, found: Sequence[str]) -> str:
    """`text` with the English words behind it. `found`: phrases of TONGUES that stand in it, and other words."""
    said = dict.fromkeys(TONGUES[word] for word in found if word in TONGUES)
    return f"{text} [{'; '.join(said)}]" if said else text
