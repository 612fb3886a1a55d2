/* Search in pages that are opened from the file system, where browsers refuse workers.

   There, a hidden frame that has the same origin as its page runs the worker's program. */
(() => {
  if (location.protocol !== "file:") return;

  class FrameWorker extends EventTarget {
    constructor(url) {
      super();
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.body.appendChild(this.frame);
      const inside = this.frame.contentWindow;
      inside.postMessage = (data) =>
        this.tell(new MessageEvent("message", { data: structuredClone(data) }));
      inside.importScripts = async (...urls) => {
        for (const each of urls) await this.run(each);
      };
      inside.addEventListener("error", ({ message, error }) =>
        this.tell(new ErrorEvent("error", { message, error })));
      this.started = this.run(url);
    }

    run(url) {
      return new Promise((done, failed) => {
        const script = this.frame.contentDocument.createElement("script");
        script.src = url;
        script.onload = done;
        script.onerror = failed;
        this.frame.contentDocument.body.appendChild(script);
      });
    }

    tell(event) {
      this.dispatchEvent(event);
      this[`on${event.type}`]?.(event);
    }

    postMessage(message) {
      const data = structuredClone(message);
      this.started.then(() =>
        this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data })));
    }

    terminate() {
      this.frame.remove();
    }
  }

  window.Worker = FrameWorker;
})();
