"""`TransferEngine`: reads from and writes to the memory of other processes, as a program uses it.

The hot calls (transfer_sync_*, batch_transfer_sync_*, *_submit, register_memory and its relatives) are the native
class's own and are inherited, not wrapped: a Python frame would cost more than a small transfer.
"""

from __future__ import annotations

import threading
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, SupportsIndex, TypeVar, overload

from memfabric_hybrid import _native, settings
from memfabric_hybrid.api import arguments, boundary
from memfabric_hybrid.clock import Deadline
from memfabric_hybrid.errors import FabricError, InvalidParam, NotInit
from memfabric_hybrid.machine import forks, memory_limits
from memfabric_hybrid.machine.interruption import Interruption
from memfabric_hybrid.membership.identity import host_identity
from memfabric_hybrid.store import FAREWELL_S, parse_url
from memfabric_hybrid.store.url import NO_PORT
from memfabric_hybrid.transfer import engines
from memfabric_hybrid.transfer.callback_thread import CallbackThread, PeerDownCallback
from memfabric_hybrid.transfer.directory import Directory
from memfabric_hybrid.transfer.engine_routes import EngineRoutes, open_routes
from memfabric_hybrid.transfer.notifications import Inbox, Notification, NotificationCallback, NotificationStream
from memfabric_hybrid.transfer.own_side import OwnSide
from memfabric_hybrid.transfer.session_id import check_name, is_address
from memfabric_hybrid.transfer.ticket import Ticket, keep_alive
from memfabric_hybrid.transports import nic as nic_choice
from memfabric_hybrid.transports.op_types import TransDataOpType, TransferOpcode
from memfabric_hybrid.transports.routes import Route

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from memfabric_hybrid.transfer.own_side import Pieces

_Buffer = TypeVar("_Buffer")
ROLES = ("Prefill", "Decode")
PEERS_WRITE = "peers may write into registered memory (if none does, register its address with register_memory)"


class _Remains(NamedTuple):
    """What outlives the end of one life of an engine by a moment."""

    session: str
    callback_threads: list[CallbackThread[Any]]
    directory: Directory | None

    def see_off(self, farewell: Deadline) -> None:
        if self.directory is not None:
            self.directory.close(farewell)
        for thread in self.callback_threads:
            thread.finish(self.session, farewell)


class TransferEngine(_native.TransferCore):
    """Moves bytes between this process and others that need to do nothing for it.

    Every engine registers the memory that others may touch and listens on its session id. Who knows a session id and an
    address in registered memory can write to and read from there:

        engine = mf.TransferEngine()
        mf.check(engine.initialize(None, "127.0.0.1:0", "Prefill", 0))
        engine.write(session_of_decode, array, address_there)

    Usable as a context manager: leaving the block destroys the engine.
    """

    TransDataOpType = TransDataOpType
    TransferOpcode = TransferOpcode

    def __init__(self) -> None:
        super().__init__()
        limit = memory_limits.tightest()
        self._set_memory_limit(limit.most_bytes, limit.holder)
        self._life = threading.Lock()  # one initialises or ends at a time; callbacks wait for it, it never for them
        self._lock = threading.Lock()  # guards everything below; held for moments
        self._entering: Interruption | None = None  # of an `initialize` under way
        self._enders = 0  # threads that want to end the engine: nobody begins a long wait under their eyes
        self._directory: Directory | None = None
        self._routes: EngineRoutes | None = None  # while the engine is open
        self._callback_thread: CallbackThread[str] | None = None
        self._inbox = Inbox()
        self._on_down: PeerDownCallback | None = None
        self._buffers: dict[int, object] = {}
        engines.add(self)

    # ---- life ------------------------------------------------------------------------------------------------------

    @boundary.returns_code
    def initialize(
        self,
        store_url: str | None = None,
        session_id: str | None = None,
        role: str = "",
        device_id: SupportsIndex = 0,
        data_op_type: SupportsIndex = TransDataOpType.SDMA,
        store_server_role: str = "Decode",
        nic: str = "",
        *,
        unique_id: str | None = None,
    ) -> None:
        """Listens at `session_id` and serves peers, from a native thread: this process's Python need not run for it.

        Args:
            store_url: None, "tcp://ip" or a full URL. Only an engine whose id is no address uses the store.
            session_id: "ip:port", "[v6]:port", "host:port"; without a port (or with 0) the reserved one is used. A
                word without a colon is a name, which needs a full `store_url`. `unique_id` is its older name.
            role: "Prefill" or "Decode"; it hides nobody.
            device_id: accepted for programs that have accelerators.
            data_op_type: which routes may be used (`TransDataOpType` bits).
            store_server_role: the role whose engines run the store at a full URL if nobody does.
            nic: "tcp://ip[/mask]:port": data of other hosts comes in at this interface, at the first free port from
                that one on; the session's own address otherwise, which the log says if another one was named. Or
                RDMA devices ("mlx5_0", "mlx5_0:1", "mlx5_0,mlx5_1", or their interfaces) that UCX uses alone;
                MF_UCX_DEVICES comes before it. One that is not here is no way, as `route` says.

        Codes: 0; -2000 a value is wrong, or the address is not of this machine; -2002 no route for `data_op_type`;
        -2004 a name, and no store answers; -2005 initialised already; -2006 the name of another engine; -2008 in a
        forked child; -2009 the port is taken.
        """
        if session_id is not None and unique_id is not None:
            raise TypeError("session_id and unique_id are the same argument: pass one of them")
        session = arguments.text("session_id", session_id if session_id is not None else unique_id)
        if store_url is not None:
            arguments.text("store_url", store_url)
        arguments.u32("device_id", device_id)
        for name, value in (("role", role), ("store_server_role", store_server_role)):
            if arguments.text(name, value) not in ROLES:
                raise InvalidParam(f"{name} is {value!r}, expected 'Prefill' or 'Decode'")
        routes = open_routes(arguments.u32("data_op_type", data_op_type), arguments.text("nic", nic))
        undone: list[_Remains] = []
        try:
            with self._life:
                self._enter(store_url, session, routes, undone, may_host=role == store_server_role)
        finally:
            if self._routes is not routes:
                routes.tls.close()
            for remains in undone:
                remains.see_off(Deadline(FAREWELL_S))

    def _enter(
        self,
        store_url: str | None,
        session: str,
        routes: EngineRoutes,
        undone: list[_Remains],
        *,
        may_host: bool,
    ) -> None:
        url = parse_url(store_url, port_required=False) if store_url else None
        has_store = url is not None and url.port != NO_PORT
        named = not is_address(session)
        if named:
            check_name(session)
        if named and not has_store:
            raise InvalidParam(
                f"session_id {session!r} is no address (ip:port), and a name needs a store_url with a port"
            )
        timeout_ms = settings.transfer_timeout_ms()
        _native.set_host_timeout(settings.heartbeat_timeout_s())
        address = f"{nic_choice.address_towards(url.host, url.port)}:0" if named and url is not None else session
        self._open(
            address, timeout_ms, host_identity(), routes.allowed, routes.data_place, routes.ucx, routes.tls.identity
        )
        self._routes = routes
        interruption = Interruption()
        try:
            with self._lock:
                self._entering = interruption
                if self._enders:
                    interruption.strike()
                self._start_callback_thread()
            self._inbox.begin(self._notification_queue())
            if has_store and url is not None:
                self._directory = directory = Directory(url, may_host=may_host, timeout_s=timeout_ms / 1000)
                with interruption.ends_by(directory.give_up):
                    if named:
                        directory.publish(session, self._session)
                self._set_directory(directory.find)
        except BaseException as failure:
            undone.append(self._end())
            if interruption.is_struck() and isinstance(failure, FabricError):
                raise NotInit(
                    f"the engine was destroyed while initialize() published the name {session!r}; initialise it again"
                ) from failure
            raise
        finally:
            self._entering = None

    def destroy(self) -> None:
        """Ends the engine: peers' transfers fail with -2014 from then on, memory of `trans_malloc` is gone.

        Waits for peers that are inside our memory, and one second for callbacks that run; they may call this, too.
        Again: nothing happens. The engine may be initialised anew.
        """
        self._end_by(Deadline(FAREWELL_S))

    def _end_by(self, farewell: Deadline) -> None:
        """`destroy`, as a part of a longer goodbye."""
        forks.notice()
        with self._lock:
            self._enders += 1
            if self._entering is not None:
                self._entering.strike()
        with self._life:
            with self._lock:
                self._enders -= 1
            remains = self._end()
        remains.see_off(farewell)  # under no lock: a callback that is waited for may be about to call us

    def unInitialize(self) -> None:
        """The documents' other name of `destroy`."""
        self.destroy()

    def _end(self) -> _Remains:
        """Under `_life`. What is left ends by itself; whoever holds no lock may wait for it."""
        session = self._session
        self._close()
        if self._routes is not None:
            self._routes.tls.close()
        self._routes = None
        _native._pause_point("transfer.destroy.closed")
        self._set_directory(None)
        with self._lock:  # after closing: until then it is the callback thread that set_peer_down_callback finds
            directory, self._directory = self._directory, None
            callback_thread, self._callback_thread = self._callback_thread, None
            self._buffers.clear()
        threads = [thread for thread in (self._inbox.end(), callback_thread) if thread is not None]
        return _Remains(session, threads, directory)

    def _abandon_after_fork(self) -> None:
        """In a forked child: lets go of the parent's sockets. The engine stays unusable here."""
        self._life = threading.Lock()
        self._lock = threading.Lock()
        self._entering, self._enders = None, 0
        self._callback_thread = None
        self._inbox.abandon_after_fork()
        self._abandon()
        if self._directory is not None:
            self._directory.abandon_after_fork()
            self._directory = None

    def __enter__(self) -> TransferEngine:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.destroy()

    @property
    def session_id(self) -> str:
        """The address at which peers reach this engine, with its port; "" when it is not initialised."""
        return self._session

    @boundary.raises
    def route(self, dest_session: str) -> Route:
        """Which way memory goes to that session that is not mapped here ("peer_process", "tcp", "ucx"), and why.

        Connects if need be. Raises FabricError if the session cannot be reached.
        """
        return Route(*self._route(arguments.text("dest_session", dest_session)))

    # ---- peers -----------------------------------------------------------------------------------------------------

    @boundary.raises
    def set_peer_down_callback(self, fn: PeerDownCallback | None) -> None:
        """`fn(session)` runs on a thread of its own when a connected peer ends or dies; None stops it.

        It hears of peers that we reached (by the name we used) and of those that reached us (by their address), once
        each, and may call anything, `destroy` and `initialize` as well. What it raises is logged and goes no further,
        even `SystemExit`. When this returns, the callback before runs no more, unless it is what calls this. Works
        before and after `initialize`. Raises errors.NoResources if no thread can be started, errors.TimedOut if the
        callback before has not returned after a second.
        """
        if fn is not None:
            arguments.function("fn", fn)
        with self._lock:
            self._on_down = fn
            before = self._callback_thread
            if before is not None:
                before.callback.set(fn)
            self._start_callback_thread()
        if before is not None:  # under no lock: it may be about to call us
            before.callback.settle("the peer-down callback", Deadline(FAREWELL_S))

    def _start_callback_thread(self) -> None:
        """Under `_lock`. One per life of the engine, once there is a callback."""
        if self._on_down is not None and (self._callback_thread is None or self._callback_thread.failed):
            wait = self._peer_failures().wait
            self._callback_thread = CallbackThread("peer-down callback", wait, self._on_down, str)

    # ---- notifications ---------------------------------------------------------------------------------------------

    @boundary.raises
    def notifications(self) -> list[Notification]:
        """All that peers have told us with `notify` and nobody has taken yet, the oldest first; those of one sender
        in its order. Does not wait.

        Raises errors.ResourceInUse while a callback takes them, errors.NotInit before `initialize`.
        """
        return self._inbox.take_all()

    @boundary.raises
    def notified(self) -> NotificationStream:
        """`async for notification in engine.notified()`: each one when it comes, until the engine is destroyed.

        Raises errors.NotInit before `initialize`; the loop raises errors.ResourceInUse once a callback takes them.
        """
        return NotificationStream(self._inbox.queue())

    @boundary.raises
    def set_notification_callback(self, fn: NotificationCallback | None) -> None:
        """`fn(notification)` runs on a thread of its own for each notification, those that wait already, too.

        One after the other, in the order in which they came. From now on `notifications` and `notified` raise; None
        leaves them to those again. It may call anything, `destroy` and `initialize` as well. What it raises is logged
        and goes no further, even `SystemExit`. Works before and after `initialize`. Raises errors.NoResources if no
        thread can be started.
        """
        if fn is not None:
            arguments.function("fn", fn)
        self._inbox.set_callback(fn)

    # ---- buffers and tickets -----------------------------------------------------------------------------------------

    @boundary.returns_code
    def register(self, buffer: object) -> None:
        """`register_memory` for an object with the buffer protocol or a torch CPU tensor; keeps it alive.

        An array may be in C or F order. Codes: 0; -2000 not contiguous, empty, read-only or not in host memory; those
        of `register_memory`.
        """
        address, size_bytes, kept = arguments.extent("buffer", buffer, written_by=PEERS_WRITE, any_order=True)
        self._register(address, size_bytes)
        with self._lock:
            self._buffers[address] = kept

    @boundary.returns_code
    def unregister(self, buffer: object) -> None:
        """Ends what `register` began. Codes: those of `unregister_memory`."""
        address, _, kept = arguments.extent("buffer", buffer, any_order=True)
        del kept
        self._unregister(address)
        with self._lock:
            self._buffers.pop(address, None)

    def write(self, dest_session: str, source: object, address: SupportsIndex, *, notify: Buffer | None = None) -> None:
        """Writes a buffer (C-contiguous array, bytes, torch CPU tensor) to `address` in the peer's registered memory.

        The bytes are there when this returns. `notify`: the peer's program gets it then. Raises ValueError for what is
        no such buffer and memory that is not registered there, errors.NotConnected for a session that cannot be
        reached, and other FabricErrors as `transfer_sync_write` has codes.
        """
        try:
            start, size_bytes, kept = arguments.extent("source", source)
            self._write(dest_session, start, address, size_bytes, notify)
            del kept  # alive until here
        except Exception as failure:
            boundary.report("TransferEngine.write", failure)
            raise

    def read(self, dest_session: str, target: _Buffer, address: SupportsIndex) -> _Buffer:
        """Fills a writable buffer from `address` in the peer's registered memory, and returns it; else as `write`."""
        try:
            start, size_bytes, kept = arguments.extent("target", target, written_by="read() writes into it")
            self._read(dest_session, start, address, size_bytes)
            del kept  # alive until here
        except Exception as failure:
            boundary.report("TransferEngine.read", failure)
            raise
        return target

    @overload
    def submit_write(
        self, dest_session: str, source: object, address: SupportsIndex, *, notify: Buffer | None = None
    ) -> Ticket: ...
    @overload
    def submit_write(
        self, dest_session: str, buffers: Pieces, peer_buffers: Pieces, lengths: Pieces, *, notify: Buffer | None = None
    ) -> Ticket: ...
    def submit_write(  # type: ignore[misc]  # both names of what comes second and third
        self,
        dest_session: str,
        source: Any = None,
        address: Any = None,
        lengths: Any = None,
        *,
        buffers: Any = None,
        peer_buffers: Any = None,
        notify: Buffer | None = None,
    ) -> Ticket:
        """Starts a write and returns at once. Raises FabricError if it cannot start.

        `submit_write(session, source, address)`: of a buffer to an address, as `write`; nobody may change it until the
        ticket is done. `submit_write(session, buffers, peer_buffers, lengths)`: of one piece at an address, or of lists
        of pieces, which the caller keeps alive. `notify`: the peer's program gets it when all bytes are there, and the
        ticket is done when it has.
        """
        try:
            own = OwnSide.of("source", source, address, buffers, peer_buffers, lengths)
            return self._ticket(self._submit_write(dest_session, *own.pieces, notify), own)
        except Exception as failure:
            boundary.report("TransferEngine.submit_write", failure)
            raise

    @overload
    def submit_read(self, dest_session: str, target: object, address: SupportsIndex) -> Ticket: ...
    @overload
    def submit_read(self, dest_session: str, buffers: Pieces, peer_buffers: Pieces, lengths: Pieces) -> Ticket: ...
    def submit_read(  # type: ignore[misc]  # both names of what comes second and third
        self,
        dest_session: str,
        target: Any = None,
        address: Any = None,
        lengths: Any = None,
        *,
        buffers: Any = None,
        peer_buffers: Any = None,
    ) -> Ticket:
        """Starts a read and returns at once; otherwise as `submit_write`. Raises FabricError if it cannot start."""
        try:
            own = OwnSide.of(
                "target", target, address, buffers, peer_buffers, lengths, written_by="submit_read() writes into it"
            )
            return self._ticket(self._submit_read(dest_session, *own.pieces), own)
        except Exception as failure:
            boundary.report("TransferEngine.submit_read", failure)
            raise

    def _ticket(self, begun: _native.TransferTicket, side: OwnSide) -> Ticket:
        if side.kept is not None:
            keep_alive(begun, side.kept)
        return Ticket(begun, self)
